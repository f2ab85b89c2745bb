# click's own script leaves the words to readline, which breaks them at the colon of a ref
_hub_completion() {
    local line="${COMP_LINE:0:COMP_POINT}" response item kind value cur before
    local -a words
    read -ra words <<< "$line"
    [[ $line == *[[:space:]] ]] && words+=("")
    cur="${words[${#words[@]}-1]}"
    before=""
    [[ $cur == *[:=@]* ]] && before="${cur%"${cur##*[:=@]}"}"
    response=$(env COMP_WORDS="$line" COMP_CWORD=$((${#words[@]} - 1)) _HUB_COMPLETE=bash_complete "${words[0]}")
    COMPREPLY=()
    while IFS= read -r item; do
        kind="${item%%,*}" value="${item#*,}"
        case "$kind" in
            dir) compopt -o dirnames 2> /dev/null ;;
            file) compopt -o default 2> /dev/null ;;
            plain) COMPREPLY+=("${value#"$before"}") ;;
        esac
    done <<< "$response"
}

complete -o nosort -F _hub_completion hub
